"""Pictures of results: curves over steps, boxes and attention drawn on a picture. Nothing here computes a result."""
