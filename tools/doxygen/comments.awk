# Turns the plain // comments of a header into those that Doxygen reads, so that the sources need no
# markup.
#
# A comment directly before a declaration documents it; one after it, on its line, too; any other at
# the level of the file documents the file. Comments within functions stay as they are. Lines that
# are indented within a comment are shown as they are written, other text is text: nothing in it is
# a command, a tag or emphasis, but `code` is code.

function text(s, parts, n, i, out) {
  n = split(s, parts, "`")
  if (n % 2 == 0) { gsub(/`/, "\\`", s); return plain(s) }
  for (i = 1; i <= n; i++) out = out (i % 2 ? plain(parts[i]) : "`" parts[i] "`")
  return out
}
function plain(s) {
  gsub(/[\\@<>#&%*~|]/, "\\\\&", s)
  return s
}

# Of the line without comments and strings: which braces open a declaration, which a body.
function scan(code, i, c) {
  gsub(/"([^"\\]|\\.)*"/, "\"\"", code)
  gsub(/'([^'\\]|\\.)'/, "''", code)
  if (code ~ /^[ \t]*#/ || directive) { directive = code ~ /\\$/; return }
  for (i = 1; i <= length(code); i++) {
    c = substr(code, i, 1)
    if (c == "{") {
      bodies += kind[++depth] = !opens_declarations(statement)
      statement = ""
    } else if (c == "}") {
      if (depth > 0) bodies -= kind[depth--]
      statement = ""
    } else if (c == ";") {
      statement = ""
    } else {
      if (c == "(") parentheses++
      if (c == ")") parentheses--
      statement = statement c
    }
  }
  statement = statement " "
}
function opens_declarations(s) {
  gsub(/template *<([^<>]|<[^<>]*>)*>/, "", s)
  sub(/^ *(public|private|protected) *:/, "", s)
  return s ~ /^ *(inline +)?(namespace|extern|typedef|struct|class|union|enum)( |$)/ && s !~ /\) *(const *)?$/
}

# Writes the comment that waits: USE is what it documents, "declaration", "file" or "none".
function flush_comment(use, i, line, verbatim, wide) {
  for (i = 1; i <= lines; i++) {
    line = comment[i]
    if (use == "none") {
      print line
      continue
    }
    match(line, /^ *\/\//)
    indent = substr(line, 1, RLENGTH - 2)
    line = substr(line, RLENGTH + 1)
    wide = line ~ /^   / && line !~ /^ *$/
    if (i == 1 && use == "file") print "/// \\file"
    if (wide && !verbatim) { verbatim = 1; print indent "/// \\code{.cpp}" }
    if (!wide && verbatim) { verbatim = 0; print indent "/// \\endcode" }
    print indent "///" (verbatim ? line : text(line))
  }
  if (verbatim) print indent "/// \\endcode"
  lines = 0
}

# The place of a trailing // outside strings, or 0.
function trailing(s, i, c, quoted) {
  for (i = 1; i < length(s); i++) {
    c = substr(s, i, 1)
    if (c == "\\") { i++; continue }
    if (c == "\"") quoted = !quoted
    if (!quoted && substr(s, i, 2) == "//") return i
  }
  return 0
}

/^ *\/\// {
  column = index($0, "//")
  if (column == continues) {  # of the comment at the end of the line before
    print substr($0, 1, column - 1) "///<" text(substr($0, column + 2))
    next
  }
  continues = 0
  comment[++lines] = $0
  next
}
{
  continues = 0
  if (lines > 0) {
    if (bodies > 0 || parentheses > 0) flush_comment("none")
    else if ($0 ~ /^ *$/ || $0 ~ /^namespace |^#include|^#if/) flush_comment(depth <= 1 ? "file" : "none")
    else if ($0 ~ /^ *(public|private|protected):|^ *}/) flush_comment("none")
    else flush_comment("declaration")
  }
  at = trailing($0)
  code = at ? substr($0, 1, at - 1) : $0
  scan(code)
  if (at && bodies == 0 && parentheses == 0 && code ~ /[;,] *$/) {
    print code "///<" text(substr($0, at + 2))
    continues = at
  } else {
    print
  }
}
END { flush_comment("none") }
