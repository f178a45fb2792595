"""Package folders that metadata alone cannot map: the plugins, and recipes as ``vlcli_recipes``."""

from setuptools import find_namespace_packages, find_packages, setup

core = find_packages(include=["vlcli", "vlcli.*"])
plugins = find_packages("plugins")
folders = find_namespace_packages("recipes", exclude=["*__pycache__*"])  # of YAML files alone: no __init__.py
recipes = ["vlcli_recipes", *(f"vlcli_recipes.{name}" for name in folders)]

setup(
    packages=[*core, *plugins, *recipes],
    package_dir={"vlcli_recipes": "recipes", **{name: f"plugins/{name}" for name in plugins if "." not in name}},
    package_data={
        "": ["py.typed", "*.yaml", "*.toml", "*.json", "*.txt"],
        "vlcli.pages": ["templates/*"],
        "vlcli.plugin_kit": ["package_template/*"],
        "vlcli.tools": ["templates/*"],
        "vlcli.demo": ["page/*"],
        "vlcli.prediction": ["small/*.json", "small/*/model/*", "small/*/model/vocab/*"],
    },
    include_package_data=False,
)
