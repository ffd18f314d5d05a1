"""The only place where real parts are joined: settings in, running processes out."""
