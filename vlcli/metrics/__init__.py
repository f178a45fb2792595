"""What tasks report: pure functions on numbers and strings, no files, no torch.

    from vlcli.metrics import vqa, nlvr2, ranking, interval
"""
