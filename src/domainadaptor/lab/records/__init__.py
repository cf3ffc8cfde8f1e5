"""Typed records: what a results folder holds, and the SQLite file that holds it."""
