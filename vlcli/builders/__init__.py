"""From a stage's section of a recipe to the objects that the stage needs: model, data, tokenizer, stores."""
