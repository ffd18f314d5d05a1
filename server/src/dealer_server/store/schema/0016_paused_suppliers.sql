-- A supplier that refuses us as a whole is paused by the worker: why. NULL: an operator paused it.
ALTER TABLE supplier ADD COLUMN paused_reason text;
