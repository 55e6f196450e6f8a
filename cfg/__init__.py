"""Settings, network descriptions and data set descriptions that come with visiontrain (found as `visiontrain.cfg`)."""
