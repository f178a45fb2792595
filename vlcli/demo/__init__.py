"""A local web page on which one tries a trained model: pictures, questions, answers, and where the model looked.

:mod:`vlcli.demo.server` speaks HTTP and checks what comes in, :mod:`vlcli.demo.asking` asks the model,
:mod:`vlcli.demo.uploads` keeps pictures, :mod:`vlcli.demo.turns` lets one request after another to the model.
"""
