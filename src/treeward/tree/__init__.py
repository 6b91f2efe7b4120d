"""The item tree: bottom-up clustering, taxonomies, naming, description and drawing."""
