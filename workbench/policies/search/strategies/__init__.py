"""The strategies of a search, each a record of its constants. `registry` finds them by name."""
