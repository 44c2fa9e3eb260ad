"""Application stage: ResNet50 behind MLPerf LoadGen."""
