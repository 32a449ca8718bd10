// In place of @vscode/native-watchdog, which the npm registry has as C++ source only. It ends an extension host whose
// parent is gone; in a container all processes end with the first one, and the host looks after its parent as well.
'use strict';

exports.start = () => {};
exports.exit = (code) => process.exit(code || 0);
