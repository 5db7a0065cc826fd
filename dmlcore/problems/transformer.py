"""A small causal transformer of flax modules, from letters to scores of the next letter."""

import math

import jax
import jax.numpy as jnp
from flax import nnx


class Block(nnx.Module):
    """Causal self-attention with two heads, and a layer of rectified units; keeps the shape (B, T, width)."""

    def __init__(self, width: int, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(width, use_bias=False, use_scale=False, rngs=rngs)
        self.qkv, self.out = nnx.Linear(width, 3 * width, rngs=rngs), nnx.Linear(width, width, rngs=rngs)
        self.up, self.down = (
            nnx.Linear(*sizes, rngs=rngs) for sizes in ((width, 2 * width), (2 * width, width))
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, length, _ = x.shape
        queries, keys, values = jnp.split(self.qkv(self.norm(x)).reshape(batch, length, 2, -1), 3, axis=-1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / math.sqrt(queries.shape[-1])
        seen = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9))
        x = x + self.out(jnp.einsum("bhqk,bkhd->bqhd", seen, values).reshape(batch, length, -1))
        return x + self.down(nnx.relu(self.up(self.norm(x))))


class Transformer(nnx.Module):
    """A transformer from letters to scores of the next letter, (B, context) -> (B, context, letters)."""

    def __init__(self, letters: int, context: int, width: int, layers: int, rngs: nnx.Rngs):
        self.letters = nnx.Linear(letters, width, use_bias=False, rngs=rngs)
        self.places = nnx.Linear(context, width, use_bias=False, rngs=rngs)
        self.blocks = nnx.List([Block(width, rngs) for _ in range(layers)])
        self.head = nnx.Linear(width, letters, rngs=rngs)

    def __call__(self, text: jax.Array) -> jax.Array:
        kind = self.head.kernel.dtype
        one_hot = jax.nn.one_hot(text, self.letters.in_features, dtype=kind)
        x = self.letters(one_hot) + self.places(jnp.eye(text.shape[1], dtype=kind))
        for block in self.blocks:
            x = block(x)
        return self.head(self.blocks[-1].norm(x))
