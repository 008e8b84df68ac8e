# Prints "FILE:LINE: PATH" for every path in a document or comment that names nothing in the tree, and for every path
# that leaves the tree. Called by .ci/lint:
#   awk -f dead_paths.awk LIST FILE...
# LIST has the tree's files and folders, one a line, relative to its root. Read are whole .md files, comments after
# // in C++, CUDA and JavaScript, comments after # elsewhere, and docstrings of Python.
#
# A word counts as a path if it has the ending of a source or document (.h .md ..), or a slash and begins with a
# folder of the root or of src. It must exist relative to the root, to src or to the file's own folder; a name without
# a slash may be anywhere. The ending may be left out after a slash: core/rng.
#
# Not checked: placeholders (words with < > * { } $ ~ or ..., a part in capitals, a stem of one letter, sum_order of
# CONTRIBUTING.md, files of a user called mine, other or best), output of builds and runs (build/, artifacts/, dist/), absolute paths of the system, URLs, headers
# of libraries.
BEGIN {
  file_like = "\\.(h|cuh|cu|cpp|hpp|py|md|cmake|toml|sh|awk)$"
  generated = "^(build|artifacts|dist)/"
  example   = "(^|/)[A-Z][A-Z_]+(/|$)|(^|/)(sum_order(/.*|\\.h)?|[a-z](_[a-z]+)?\\.[a-z]+)$|^(forward|backward)\\.cpp$|^(mine|other|best)\\.(cpp|md)$"
  library   = "^(CLI|boost|cub|cuda/std|cutlass|fmt|hwy|linux|nlohmann|sys)/|^(cuda[a-z0-9_]*|cublas[a-z0-9_]*|cblas|foreach_target)\\.h$|^llama\\.cpp$"
  outside   = "^/(work|home|root|mnt)(/|$)"
}

FILENAME == ARGV[1] {
  exists[$0]
  stem = $0
  if (sub(/\.[^.\/]+$/, "", stem)) exists[stem]
  n = split($0, part, "/")
  named[part[n]]
  if (n == 1) root_folder[$0]
  if (n == 2 && part[1] == "src") root_folder[part[2]]
  next
}

# The path without "." and ".." steps; "" where it leaves the tree.
function normal(path,   n, i, k, part, kept, out) {
  n = split(path, part, "/")
  for (i = 1; i <= n; ++i) {
    if (part[i] == "" || part[i] == ".") continue
    if (part[i] == "..") {
      if (k == 0) return ""
      --k
    } else {
      kept[++k] = part[i]
    }
  }
  for (i = 1; i <= k; ++i) out = out (i > 1 ? "/" : "") kept[i]
  return out
}

function is_dead(word,   own, from_own) {
  own = FILENAME
  sub(/[^\/]*$/, "", own)
  from_own = normal(own word)
  if (word ~ /(^|\/)\.\.\//) return from_own == "" || !(from_own in exists)
  if (word in exists || ("src/" word) in exists || from_own in exists) return 0
  return word ~ /\// || !(word in named)
}

# The prose of a line: all of it in a document, the comment in a source.
function text_of(line,   quote) {
  if (FILENAME ~ /\.md$/) return line
  if (FILENAME ~ /\.(h|cuh|cpp|cu|js)$/) return match(line, /(^|[^:])\/\/.*/) ? substr(line, RSTART) : ""
  if (FILENAME ~ /\.py$/) {
    quote = gsub(/"""/, "", line)
    if (docstring || quote) {
      if (quote == 1) docstring = !docstring
      return line
    }
  }
  return match(line, /(^|[ \t])#.*/) ? substr(line, RSTART) : ""
}

FNR == 1 { docstring = 0 }

{
  text = text_of($0)
  gsub(/[a-z]+:\/\/[^ )>"`]*/, " ", text)           # addresses
  gsub(/[^A-Za-z0-9_.\/<>*{}$~+-]+/, " ", text)
  count = split(text, words, " ")
  for (i = 1; i <= count; ++i) {
    word = words[i]
    sub(/[.]+$/, "", word)
    sub(/^[<]+/, "", word)                          # an include in <>
    sub(/[>]+$/, "", word)
    sub(/\/$/, "", word)
    if (word ~ /[<>*{}$~]|\.\.\.|^\.[a-z]+$/ || word ~ generated || word ~ library || word ~ example) continue
    first = word
    sub(/\/.*/, "", first)
    if (word ~ /^\//) {
      if (word !~ outside) continue
    } else if (word !~ file_like && !(word ~ /\// && (first in root_folder || first ~ /^\.\.?$/))) {
      continue
    }
    if (word ~ outside || is_dead(word)) print FILENAME ":" FNR ": " word
  }
}
