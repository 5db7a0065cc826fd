"""Methods: policies, load rules, transports and codecs."""
