"""Operations of the language: their settings, arguments and checks, a module for each family."""
