"""Text: cleaning, redacting, splitting and formatting it.

Each function that cleans a text serves another reader, and therefore treats characters differently:

- `storable`, for databases: only unpaired surrogates and NUL are replaced;
- `display_text` and `display_line`, for a terminal or a page: control characters become visible
  symbols, marks that change the direction of writing are removed, all else stays;
- `quote_text` and `clean_for_prompt`, for a model: one line in which nothing can end the quotes,
  format anything or be invisible, so active characters become look-alikes;
- `title_line`, for titles: one line, unprintable characters removed;
- `log_line`, for errors and logs: the beginning on one line, unprintable characters become spaces.

All of them join lines and cut with `one_line` and `shorten`.
"""
