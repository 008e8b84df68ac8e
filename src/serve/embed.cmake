# Compiles into fathom_serve what serve/embedded_files.h declares: the page, joined from src/serve/page/, and openapi.json.
#
# Included, it adds the rule. Run as a script by that rule (cmake -D FROM=src/serve -D TO=folder -P embed.cmake), it writes
# TO/page.html, which is also what the browser's test opens, and TO/page.cpp.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(page_folder ${CMAKE_CURRENT_BINARY_DIR})
  add_custom_command(
    OUTPUT ${page_folder}/page.cpp ${page_folder}/page.html
    COMMAND ${CMAKE_COMMAND} -D FROM=${CMAKE_CURRENT_SOURCE_DIR} -D TO=${page_folder}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/embed.cmake
    DEPENDS embed.cmake page/index.html page/page.css page/page.js openapi.json
    COMMENT "Joining the server's page"
    VERBATIM)
  target_sources(fathom_serve PRIVATE ${page_folder}/page.cpp)
  return()
endif()

# A source of a Content-Security-Policy that admits exactly this text: its SHA-256, in base64, three bytes at a time.
function(csp_hash text result)
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  string(APPEND hex "00")  # 32 bytes are one short of a multiple of three
  set(base64 "")
  foreach(at RANGE 0 65 6)
    string(SUBSTRING "${hex}" ${at} 6 three)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${three} >> ${shift}) & 63")
      string(SUBSTRING "${digits}" ${digit} 1 digit)
      string(APPEND base64 "${digit}")
    endforeach()
  endforeach()
  string(REGEX REPLACE ".$" "=" base64 "${base64}")
  set(${result} "'sha256-${base64}'" PARENT_SCOPE)
endfunction()

# The contents of a file that a raw string literal, a <style> or a <script> can hold.
function(read_text path result)
  file(READ "${path}" text)
  foreach(end IN ITEMS ")embedded\"" "</script" "</style" "<!--")
    string(FIND "${text}" "${end}" found)
    if(NOT found EQUAL -1 AND NOT (path MATCHES "html$" AND NOT end MATCHES "embedded"))
      message(FATAL_ERROR "${path} holds '${end}', which would end it early where it is embedded: write it otherwise.")
    endif()
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

read_text(${FROM}/page/index.html page)
read_text(${FROM}/page/page.css style)
read_text(${FROM}/page/page.js script)
read_text(${FROM}/openapi.json openapi)
string(JSON ignored LENGTH "${openapi}")  # fails where it is no JSON

csp_hash("${style}" style_hash)
csp_hash("${script}" script_hash)
set(policy "default-src 'none'; script-src ${script_hash}; style-src ${style_hash}; connect-src 'self'; img-src data:")
string(APPEND policy "; base-uri 'none'; form-action 'none'")
string(REPLACE "@POLICY@" "${policy}" page "${page}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")

file(WRITE ${TO}/page.html "${page}")
file(WRITE ${TO}/page.cpp "// Made by src/serve/embed.cmake.
#include \"serve/embedded_files.h\"

namespace fathom::serve {

std::string_view page_html() {
  return R\"embedded(${page})embedded\";
}

std::string_view openapi_json() {
  return R\"embedded(${openapi})embedded\";
}

}  // namespace fathom::serve
")
