"""Door 1: dealers' calls. authenticate → route → operation → reply."""
