"""The local web page over run folders: it reads their files and imports none of the training side."""
