"""The bundled sample sets and the scripts that draw them; installed as `visiontrain.bundled`."""
