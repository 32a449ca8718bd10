// In place of @vscode/spdlog, which the npm registry has as C++ source only: the same log files, written by Node.
'use strict';

const fs = require('fs');
const path = require('path');

const LEVELS = ['trace', 'debug', 'info', 'warning', 'error', 'critical'];
const METHODS = ['trace', 'debug', 'info', 'warn', 'error', 'critical'];
const INFO = 2;

class Logger {
	constructor(_type, _name, file, maxSize, maxFiles) {
		this._file = file;
		this._maxSize = maxSize;
		this._maxFiles = maxFiles;
		this._level = INFO;
		this._raw = false;
		this._open();
		METHODS.forEach((method, level) => {
			this[method] = (message) => this._write(level, message);
		});
	}

	getLevel() { return this._level; }
	setLevel(level) { this._level = level; }
	setPattern() { this._raw = false; }
	clearFormatters() { this._raw = true; }
	// Each message is written at once.
	flush() {}

	drop() {
		if (this._handle !== undefined) {
			fs.closeSync(this._handle);
			this._handle = undefined;
		}
	}

	_open() {
		this._handle = fs.openSync(this._file, 'a');
		this._size = fs.fstatSync(this._handle).size;
	}

	_write(level, message) {
		if (level < this._level || this._handle === undefined) {
			return;
		}
		const time = new Date().toISOString().slice(0, -1).replace('T', ' ');
		const line = this._raw ? message : `${time} [${LEVELS[level]}] ${message}\n`;
		// A full disk must not end the IDE.
		try {
			if (this._maxSize && this._size + line.length > this._maxSize) {
				this._rotate();
			}
			this._size += fs.writeSync(this._handle, line);
		} catch {}
	}

	_rotate() {
		this.drop();
		const { dir, name, ext } = path.parse(this._file);
		const former = (number) => number ? path.join(dir, `${name}.${number}${ext}`) : this._file;
		for (let number = this._maxFiles - 2; number >= 0; number--) {
			if (fs.existsSync(former(number))) {
				fs.renameSync(former(number), former(number + 1));
			}
		}
		if (this._maxFiles < 2) {
			fs.truncateSync(this._file);
		}
		this._open();
	}
}

async function createLogger(name, file, maxSize, maxFiles) {
	await fs.promises.mkdir(path.dirname(file), { recursive: true });
	return new Logger('rotating', name, file, maxSize, maxFiles);
}

exports.version = 11500;
exports.Logger = Logger;
exports.setLevel = () => {};
exports.setFlushOn = () => {};
exports.createRotatingLogger = createLogger;
exports.createAsyncRotatingLogger = createLogger;
