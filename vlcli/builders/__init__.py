"""Builds the objects that a stage of a recipe needs: model, data, tokenizer, stores."""
