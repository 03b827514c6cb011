"""A folder that answers: saved, opened, asked. No Lightning."""
