"""The RT face: clients of the RT-* family of reseller APIs call our operations (docs/decisions/0049-rt-face.md)."""
