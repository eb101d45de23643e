# SPDX-License-Identifier: Apache-2.0
"""A short notation for the shape of JSON documents, and the JSON Schema that says the same.

    "number", "integer", "string", "boolean"     a value; "number?" is null, too
    [shape]                                      a list
    {"key": shape, "other?": shape}              an object with these keys; "other" may be missing
    {"*": shape}                                 an object with keys of any name
    Maybe(shape)                                 the shape, or null
    Either(shape, shape)                         one of them
    Words("a", "b"), Words("a", null=True)       one of these words
    Shared("name", shape)                        a shape that occurs in several places
    ANYTHING                                     any value: the keys are those of another page
"""

ANYTHING = object()


class Maybe:
    def __init__(self, shape):
        self.shape = shape


class Either:
    def __init__(self, *shapes):
        self.shapes = shapes


class Words:
    def __init__(self, *words, null=False):
        self.words = list(words) + ([None] if null else [])


class Shared:
    def __init__(self, name, shape):
        self.name, self.shape = name, shape


class Version:
    """The version of a document, which goes with that of its schema."""

    def __init__(self, number):
        self.number = number


def schema_of(shape, shared):
    """The JSON Schema of a shape; adds those of shared shapes to `shared` by their names."""
    if shape is ANYTHING:
        return {}
    if isinstance(shape, str):
        name = shape.removesuffix("?")
        return {"type": [name, "null"] if shape.endswith("?") else name}
    if isinstance(shape, list):
        return {"type": "array", "items": schema_of(shape[0], shared)}
    if isinstance(shape, Words):
        return {"enum": shape.words}
    if isinstance(shape, Version):
        return {"const": shape.number}
    if isinstance(shape, Maybe):
        return {"anyOf": [schema_of(shape.shape, shared), {"type": "null"}]}
    if isinstance(shape, Either):
        return {"anyOf": [schema_of(one, shared) for one in shape.shapes]}
    if isinstance(shape, Shared):
        if shape.name not in shared:
            shared[shape.name] = {}  # before the shape, so that parts of it stand behind it
            shared[shape.name] = schema_of(shape.shape, shared)
        return {"$ref": f"#/$defs/{shape.name}"}
    if "*" in shape:
        return {"type": "object", "additionalProperties": schema_of(shape["*"], shared)}
    return {"type": "object",
            "properties": {key.removesuffix("?"): schema_of(value, shared) for key, value in shape.items()},
            "required": [key for key in shape if not key.endswith("?")],
            "additionalProperties": False}


def document(name, title, shape):
    """The schema of a document of this name as JSON; the number in its `$id` is its version."""
    shared = {}
    body = schema_of(shape, shared)
    version = shape["schema_version"].number if "schema_version" in shape else 1
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:pipetwin:schema:{name}:{version}",
            "title": title, **body, **({"$defs": shared} if shared else {})}
