"""nbconvert's configuration while the site is built (found through JUPYTER_CONFIG_PATH): our preprocessors."""

c = get_config()  # noqa: F821
c.Exporter.default_preprocessors = [
    "common.site.kernels.CachedExecutePreprocessor",
    "common.site.render.PagePreprocessor",
]
