"""What people look at: plots, the explorer, notebook displays."""
