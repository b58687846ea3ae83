"""Values of classes, functions and objects that programs define."""
