# SPDX-License-Identifier: Apache-2.0
"""Judges documents by the words of JSON Schema 2020-12 that the schemas of docs/ have; a schema with other words is refused."""
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
         "null": type(None)}
KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "enum", "const", "minimum", "maximum", "items",
         "properties", "required", "additionalProperties", "anyOf", "allOf", "if", "then"}


def is_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def faults(value, schema, whole, place=""):
    """What is wrong with the value; nothing where the schema, a part of the `whole` one, accepts it."""
    assert not set(schema) - KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        target = whole
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        yield from faults(value, target, whole, place)
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(is_type(value, name) for name in names):
        yield f"{place}: not of type {', '.join(names)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is no word"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: not {schema['const']!r}"
    if isinstance(value, (int, float)):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            yield f"{place}: {value} is out of range"
    if "anyOf" in schema:
        of_each = [list(faults(value, one, whole, place)) for one in schema["anyOf"]]
        if all(of_each):
            yield min(of_each, key=len)[0] if value is not None else f"{place}: null has none of the forms"
    for one in schema.get("allOf", []):
        yield from faults(value, one, whole, place)
    if "if" in schema and not any(faults(value, schema["if"], whole, place)):
        yield from faults(value, schema["then"], whole, place)
    if isinstance(value, list) and "items" in schema:
        for index, entry in enumerate(value):
            yield from faults(entry, schema["items"], whole, f"{place}[{index}]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for key in schema.get("required", []):
            if key not in value:
                yield f"{place}.{key} is missing"
        for key, entry in value.items():
            if key in properties:
                yield from faults(entry, properties[key], whole, f"{place}.{key}")
            elif others is False:
                yield f"{place}.{key} is unknown"
            elif others is not True:
                yield from faults(entry, others, whole, f"{place}.{key}")
