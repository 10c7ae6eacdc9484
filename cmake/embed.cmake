# Writes the kernels' texts into one C file: cmake -DOUTPUT=... -DDIALECT=... -DFILES=a.kl,b.kl -P embed.cmake
#
# As bytes, because a text may be longer than a string literal has to be; each stands behind the dialect, and those for tensor
# cores (a_mma.kl, a_mma_b.kl) behind dialect_mma.h too.
string(REPLACE "," ";" FILES "${FILES}")
file(READ ${DIALECT} dialect)
string(REPLACE "dialect.h" "dialect_mma.h" DIALECT_MMA "${DIALECT}")
file(READ ${DIALECT_MMA} dialect_mma)
set(arrays "")
set(table "")
foreach(file ${FILES})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    set(more "")
    if(name MATCHES "_mma($|_)")
        set(more "#line 1 \"dialect_mma.h\"\n${dialect_mma}")
    endif()
    set(whole "${dialect}${more}#line 1 \"${name}.kl\"\n${text}")
    string(HEX "${whole}" hex)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND arrays "static const unsigned char text_${name}[] = {${bytes}0x00};\n")
    string(APPEND table "    \"${name}\", (const char *)text_${name},\n")
endforeach()
file(WRITE ${OUTPUT} "/* Made by cmake/embed.cmake from the .kl files in src/device and src/ops. */\nextern const char *const kernel_texts[];\n${arrays}const char *const kernel_texts[] = {\n${table}    0,\n};\n")
