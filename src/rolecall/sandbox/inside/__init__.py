"""What runs inside a sandbox: standard library only, nothing of rolecall's beside this folder is there."""
