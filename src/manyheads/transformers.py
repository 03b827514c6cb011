"""`import manyheads.transformers` registers classes for Hugging Face transformers: the module that a plugin adds."""

import sys

import manyheads.plugin as plugin

if "transformers" not in plugin.names("module"):
    raise ModuleNotFoundError("no plugin adds manyheads.transformers", name=__name__)
sys.modules[__name__] = plugin.make("module", "transformers")
