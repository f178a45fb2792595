"""Exporters: a trained model in another format. One of one's own subclasses :class:`vlcli.export.base.Exporter`."""
