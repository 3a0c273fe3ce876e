"""Read and write predictions and maps: files, data frames and arrays."""

from calibrant.files.load import load, load_features
from calibrant.files.map_file import MapFile, load_feature_map, load_map, read_map_file, save_map
from calibrant.files.save import save

__all__ = ["MapFile", "load", "load_feature_map", "load_features", "load_map", "read_map_file", "save", "save_map"]
