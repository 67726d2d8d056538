"""The MacPorts port of this project: its versions, its distfile, its Portfile. It knows nothing of patches."""
