"""Serves a local web page on which one tries a trained model: pictures, questions, answers, attention."""
