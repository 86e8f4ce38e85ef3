"""The site's build: chapters are read, executed once, rendered in both languages and checked.

`plugin` is what MkDocs calls; every other module takes and returns plain values. No chapter imports anything from here.
"""
