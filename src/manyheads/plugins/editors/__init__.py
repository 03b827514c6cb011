"""The verb `schema`: all settings as a JSON schema, by which an editor completes and checks presets."""

from pathlib import Path

from manyheads.plugin import Plugin, Verb

SCHEMA = Verb(
    "schema",
    config="manyheads.plugins.editors.schema:SchemaConfig",
    run="manyheads.plugins.editors.schema:write_schema",
    record="manyheads.plugins.editors.schema:schema_record",
    help="print a JSON schema of the settings, by which an editor completes presets",
    examples=("manyheads schema of=train", "manyheads schema of=model output=model.json"),
    no_multirun="prints a schema",
)
PLUGIN = Plugin("editors", verbs=(SCHEMA,), presets=Path(__file__).parent / "conf")
