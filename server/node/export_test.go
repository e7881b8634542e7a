package node

// InCore says that the test binary was started as a core.
var InCore = inCore

// TakeArguments is takeArguments.
var TakeArguments = takeArguments
