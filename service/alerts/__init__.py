"""Telling people: channels, what is put out for them, and who sends it."""
