"""What tasks report: pure functions on numbers and strings, no files, no torch.

One module a family: ``vqa``, ``nlvr2``, ``ranking``, ``interval``.
"""
