-- Compatible from: 36
-- Which programs work on a schema that is newer than they are? A migration says so in a line as the first one here: a
-- program works on it that knows that migration or a later one. Without such a line it has to know this one.
ALTER TABLE migration ADD COLUMN compatible_from integer;
