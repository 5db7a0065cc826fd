"""Views for people: plots, the explorer and notebook displays."""
