# Takes the fenced blocks of code out of Markdown files:
#
#   awk -v out=FOLDER -f extract.awk README.md core/README.md ...
#
# writes each to FOLDER/<path with _ for />_<number>.<language> and prints a line for each:
# file, language, line of the Markdown file, condition. The condition is what a comment on the line
# before the block says: <!-- needs cora --> or <!-- not run: why -->; "-" without one.
FNR == 1 { stem = FILENAME; gsub(/[^A-Za-z0-9]/, "_", stem); number = 0; inside = 0; before = "" }
/^```/ && !inside {
  language = substr($0, 4)
  inside = 1
  if (language == "") { file = ""; next }
  number++
  condition = "-"
  if (before ~ /^<!-- (needs|not run)/) { condition = before; gsub(/^<!-- | -->$/, "", condition) }
  file = out "/" stem "_" number "." language
  printf "" > file
  print file, language, FNR + 1, condition
  next
}
/^```/ { inside = 0; if (file != "") close(file); before = ""; next }
inside { if (file != "") print > file; next }
/[^ \t]/ { before = $0 }
