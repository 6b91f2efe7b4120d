"""Items and what users did with them: `Catalogue`, `Interactions`, and their loaders."""
