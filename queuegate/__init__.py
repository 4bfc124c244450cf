"""Queuegate as others have it installed: one package, with the folders of its source inside.

To import this changes nothing. The command alone puts them on its path: see `__main__`.
"""
