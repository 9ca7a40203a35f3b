"""The pages that a person sees: written here as HTML, quick, whole without a script, with nothing from elsewhere."""
