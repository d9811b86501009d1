from setuptools import find_namespace_packages, setup

# schemas/ stands beside the package, where the team edits it; a wheel carries it as _schemas.
own = find_namespace_packages(include=["kafka_assets", "kafka_assets.*"])
setup(
    packages=[*own, "kafka_assets._schemas"],
    package_dir={"kafka_assets._schemas": "schemas"},
    package_data={
        "": ["*.xml", "*.properties", "*.yaml", "*.sql"],
        "kafka_assets._schemas": ["*.json", "*.ddl", "*.avsc", "*.proto"],
    },
)
