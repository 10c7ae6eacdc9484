# Writes a C file with one hash of several files: cmake -DOUTPUT=... -DNAME=... -DFILES=a.c,b.c -P digest.cmake
string(REPLACE "," ";" FILES "${FILES}")
set(all "")
foreach(file ${FILES})
    file(SHA256 ${file} digest)
    string(APPEND all ${digest})
endforeach()
string(SHA256 digest "${all}")
file(WRITE ${OUTPUT} "/* Made by cmake/digest.cmake. */\nextern const char *const ${NAME};\nconst char *const ${NAME} = \"${digest}\";\n")
