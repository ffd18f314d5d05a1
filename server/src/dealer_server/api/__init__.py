"""The dealer API: listener → gateway → authenticate → route → reply."""
