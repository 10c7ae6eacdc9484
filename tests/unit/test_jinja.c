/* The Jinja interpreter: its results are those that jinja2 gives, every byte keeps its message, and no template exceeds
 * its budget. */
#include "test.h"

#include <stdio.h>

#include "failing.h"
#include "text/jinja/ast.h"
#include "text/jinja/jinja.h"

static const char *const CONTEXT =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": \"assistant\", \"content\": \"world\"}],"
    " \"tools\": null, \"add_generation_prompt\": false}";

static enum status render(const char *template, const char *context, const struct jinja_budget *budget, struct jinja_output *out)
{
    struct jinja *jinja;
    json_t *tree;
    TRY(jinja_parse(&jinja, template, (int64_t)strlen(template), "t"));
    enum status status = json_parse(&tree, context, (int64_t)strlen(context), "context");
    if (status == OK) {
        status = jinja_render(jinja, tree, budget, out);
        json_decref(tree);
    }
    jinja_free(jinja);
    return status;
}

/* A template and what jinja2 3.1.6 renders, set up as transformers does. */
static const struct {
    const char *template, *text;
} SAME[] = {
    {"{{ 1.0 }} {{ 1e16 }} {{ 1.5e-7 }} {{ 0.1+0.2 }} {{ 123456789012345.6 }} {{ 1e22 }} {{ -0.0 }} {{ 100000.0*10 }}",
     "1.0 1e+16 1.5e-07 0.30000000000000004 123456789012345.6 1e+22 -0.0 1000000.0"},
    {"{{ true }} {{ none }} {{ [1,'a',none,true,1.5] }} {{ (1,) }} {{ () }} {{ {'a':1,'b':[{}]} }} {{ {1:2, none:3} }}",
     "True None [1, 'a', None, True, 1.5] (1,) () {'a': 1, 'b': [{}]} {1: 2, None: 3}"},
    {"{{ 'it\\'s' ~ \"x\" }} {{ [\"it's\"] }} {{ ['a\"b'] }} {{ ['a\\'b\"c'] }} {{ ['\\n\\t\\\\ é \\x01 \\u200b 你'] }}",
     "it'sx [\"it's\"] ['a\"b'] ['a\\'b\"c'] ['\\n\\t\\\\ é \\x01 \\u200b 你']"},
    {"{{ 7//2 }} {{ -7//2 }} {{ -7%3 }} {{ 7%-3 }} {{ 7/2 }} {{ 2**10 }} {{ 2**-1 }} {{ -2**2 }} {{ 7.5//2 }} {{ -7.5%2 }} {{ "
     "1+2*3-4 }}",
     "3 -4 2 -2 3.5 1024 0.5 4 3.0 0.5 3"},
    {"{{ 'ab'*3 }} {{ [1]*2 }} {{ 3*'x' }} {{ [1]+[2] }} {{ 'a'+'b'~1~none~2.0 }}", "ababab [1, 1] xxx [1, 2] ab1None2.0"},
    {"{{ 1<2<3 }} {{ 1<3<2 }} {{ 'a' in 'cat' }} {{ 2 in [1,2] }} {{ 'k' in {'k':1} }} {{ 3 not in [1] }} {{ 1==1.0 }} {{ "
     "true==1 }} {{ 'a'<'b' }} {{ [1,2]<[1,3] }}",
     "True False True True True True True True True True"},
    {"{{ 'abcdef'[1:3] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[::2] }} {{ [1,2,3,4][1:] }} {{ [1,2,3][::-1] }} "
     "{{ 'héllo wörld'[1:8:2] }} {{ 'abc'[5:] }}|{{ 'abc'[-10:2] }} {{ 'abcdef'[4:1:-1] }}",
     "bc fedcba ef ace [2, 3, 4] [3, 2, 1] él ö |ab edc"},
    {"{{ x is defined }} {{ x }} {{ x|default('d') }} {{ ''|default('e',true) }} {{ x is undefined }} {{ none|default('n') }} {{ "
     "x|length }} {{ x == y }}",
     "False  d e True None 0 True"},
    {"{% for i in range(3) %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.previtem }}{{ "
     "loop.nextitem }},{% endfor %}",
     "1TrueFalse31,2FalseFalse202,3FalseTrue11,"},
    {"{% for i in [] %}a{% else %}empty{% endfor %}{% for k,v in {'a':1,'b':2}.items() %}{{k}}={{v}};{% endfor %}",
     "emptya=1;b=2;"},
    {"{% for i in range(10) if i%2 %}{{ i }}/{{ loop.length }} {% endfor %}", "1/5 3/5 5/5 7/5 9/5 "},
    {"{% for i in range(5) %}{% if i==1 %}{% continue %}{% endif %}{% if i==3 %}{% break %}{% endif %}{{i}}{% endfor %}", "02"},
    {"{% set x=1 %}{% for i in [1,2] %}{% set x=x+1 %}{{x}}{% endfor %}{{x}}", "221"},
    {"{% set ns=namespace(a=1,b='q') %}{% for i in [1,2] %}{% set ns.a=ns.a+i %}{% endfor %}{{ns.a}}{{ns.b}}{{ns.c is "
     "defined}}{{ ns }}",
     "4qFalse<Namespace {'a': 4, 'b': 'q'}>"},
    {"{% set x %}block {{ 1 }}{% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]", "[block 1][ABC]"},
    {"{% macro m(a,b=2,c=a) %}{{a}}-{{b}}-{{c}};{% endmacro %}{{ m(1) }}{{ m(1,c=3) }}{{ m(b=5,a=4) }}{{ m() }}",
     "1-2-1;1-2-3;4-5-4;-2-;"},
    {"{% macro outer(n) %}{% if n>0 %}{{n}}{{ outer(n-1) }}{% endif %}{% endmacro %}{{ outer(3) }}", "321"},
    {"{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}inner{% endcall %}{% macro w2() %}{{ caller(7) }}{% endmacro "
     "%}{% call(v) w2() %}v={{v}}{% endcall %}",
     "<inner>v=7"},
    {"{% set z=5 %}{% macro q() %}{{ z }}{{ loop is defined }}{% endmacro %}{% for z in [1] %}{{ q() }}{% endfor %}{% set z=6 "
     "%}{{ q() }}",
     "5False6False"},
    {"{{ '  a b '|trim }}|{{ '--a--'.strip('-') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxx'|trim('x') }}",
     "a b|a|a | a|a"},
    {"{{ 'a b  c '.split(maxsplit=1) }}", "['a', 'b  c ']"},
    {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',',1) }} {{ 'a,b,c'.rsplit(',',1) }} {{ 'a b c "
     "d'.split(none,2) }} {{ ''.split() }} {{ ''.split(',') }}",
     "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b,c'] ['a,b', 'c'] ['a', 'b', 'c d'] [] ['']"},
    {"{{ 'hello world foo-bar'.title() }} {{ \"it's a dog-day (ok) 3rd\"|title }} {{ 'hELLO'|capitalize }} {{ 'ß straße'.upper() "
     "}} {{ 'ÀÉ'|lower }}",
     "Hello World Foo-Bar It's A Dog-Day (Ok) 3rd Hello SS STRASSE àé"},
    {"{{ 'aXbXc'.replace('X','-') }} {{ 'aaa'.replace('a','b',2) }} {{ 'abc'|replace('b','') }} {{ 'abc'.replace('','.') }}",
     "a-b-c bba ac .a.b.c."},
    {"{{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'héé'.find('é') }} {{ 'abab'.rfind('b') }} {{ 'banana'.count('an') }} {{ "
     "'abc'.startswith(('x','a')) }} {{ 'abc'.endswith('c') }}",
     "2 -1 1 3 2 True True"},
    {"{{ {'b':1,'a':{'x':[1,2.5,none,true]}}|tojson }} {{ 'é\"\\n<>&\\x7f'|tojson }} {{ 'é😀'|tojson(ensure_ascii=true) }} {{ "
     "[]|tojson(indent=2) }} {{ {'a':[]}|tojson(indent=2) }}",
     "{\"b\": 1, \"a\": {\"x\": [1, 2.5, null, true]}} \"é\\\"\\n<>&\177\" \"\\u00e9\\ud83d\\ude00\" [] {\n  \"a\": []\n}"},
    {"{{ {'b':1,'a':[1,{'c':2}]}|tojson(indent=2) }}{{ {'b':1,'a':2}|tojson(sort_keys=true) }}{{ "
     "{'a':1,'b':2}|tojson(separators=(',',':')) }}{{ {1:2,none:1,true:0}|tojson }}",
     "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    {\n      \"c\": 2\n    }\n  ]\n}{\"a\": 2, \"b\": 1}{\"a\":1,\"b\":2}{\"1\": 0, "
     "\"null\": 1}"},
    {"{{ [3,1,2]|sort }} {{ ['b','A','c']|sort }} {{ ['b','A','c']|sort(case_sensitive=true) }} {{ [3,1,2]|sort(reverse=true) }} "
     "{{ [{'a':2},{'a':1}]|sort(attribute='a') }} {{ {'b':1,'A':2}|dictsort }} {{ ['a','A','b']|unique|list }}",
     "[1, 2, 3] ['A', 'b', 'c'] ['A', 'b', 'c'] [3, 2, 1] [{'a': 1}, {'a': 2}] [('A', 2), ('b', 1)] ['a', 'b']"},
    {"{{ [1,2,3]|sum }} {{ [1,5,3]|max }} {{ [4,2]|min }} {{ [1,2]|first }} {{ [1,2]|last }} {{ []|first }} {{ 'abc'|first }} {{ "
     "[1,2,3]|reverse|list }} {{ 'abc'|reverse }}",
     "6 5 2 1 2  a [3, 2, 1] cba"},
    {"{{ ['a','b']|map('upper')|join('-') }} {{ [{'n':1},{'n':2},{}]|map(attribute='n')|list }} {{ "
     "[{'n':1},{}]|map(attribute='n',default=9)|list }} {{ [0,1,2]|select|list }} {{ [1,2,3]|select('odd')|list }} {{ "
     "[1,2,3]|reject('gt',1)|list }}",
     "A-B [1, 2, Undefined] [1, 9] [1, 2] [1, 3] [1]"},
    {"{{ [{'a':1,'b':1},{'a':2}]|selectattr('b')|list }} {{ [{'a':1},{'a':2}]|selectattr('a','equalto',2)|list }} {{ "
     "[{'a':{'b':1}}]|map(attribute='a.b')|list }} {{ [{'a':1},{'b':2}]|rejectattr('a','defined')|list }}",
     "[{'a': 1, 'b': 1}] [{'a': 2}] [1] [{'b': 2}]"},
    {"{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.5'|float }} {{ 3|float }} {{ 3.99|int }} {{ ' 5 '|int "
     "}} {{ 'ff'|int(0,16) }} {{ 2.5|round }} {{ 3.14159|round(2) }} {{ 2.1|round(0,'ceil') }} {{ -3|abs }} {{ 1|string ~ 'x' }}",
     "42 4 0 7 3.5 3.0 3 5 255 2.0 3.14 3.0 3 1x"},
    {"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2,true) }}|{{ 'a\\n\\nb\\n'|indent(2,first=true,blank=true) }}|{{ ''|indent "
     "}}|{{ 'a\\n'|indent(2) }}",
     "a\n    b\n\n    c|  a\n  b|  a\n  \n  b\n  ||a\n"},
    {"{{ '%s is %d and %r %5.2f%%' % ('a', 3, 'b', 1.5) }} {{ '{} {1} {0} {n}'.format('a','b',n=3) if false }} {{ '{} "
     "{}'.format(1,'x') }} {{ '{0}{1}{0}'.format('a','b') }} {{ '{{}}{x}'.format(x=1) }} {{ '%s-%s'|format('a',2) }}",
     "a is 3 and 'b'  1.50%  1 x aba {}1 a-2"},
    {"{{ 1 if false }}|{{ 1 if true else 2 }}|{{ 'a' if x is defined else 'b' }}|{{ not true or true and false }}|{{ 1 and 2 "
     "}}|{{ 0 or 'z' }}",
     "|1|b|False|2|z"},
    {"{%- if true -%}  x  {%- endif -%}   y {%+ if true %}  z{% endif +%}", "xy   z"},
    {"{% raw %}{{ not }} {% raw %}{% endraw %} ok {%- raw -%}  {{ x }}  {%- endraw -%}  .", "{{ not }} {% raw %} ok{{ x }}."},
    {"{{ {'a':{'b':{'c':1}}}.a.b.c }} {{ {'items':1}['items'] }} {{ {'x':1}.get('x') }} {{ {'x':1}.get('y') }} {{ "
     "{'x':1}.get('y','d') }} {{ {'a':1}.keys()|list }} {{ {'a':1}.values()|list }} {{ {'a':1}.items()|list }} {{ "
     "{'a':1}.items() }} {{ {'a':1}.missing is defined }} {{ [1].x is defined }}",
     "1 1 1 None d ['a'] [1] [('a', 1)] dict_items([('a', 1)]) False False"},
    {"{{ 5 is number }} {{ 'a' is string }} {{ [] is sequence }} {{ {} is mapping }} {{ 'a' is iterable }} {{ 5 is iterable }} "
     "{{ true is boolean }} {{ 1 is boolean }} {{ none is none }} {{ 3 is odd }} {{ 4 is even }} {{ 4 is divisibleby 2 }} {{ 3 "
     "is in [3] }} {{ 1 is eq 1 }} {{ {} is sequence }} {{ 1.0 is float }} {{ 1 is integer }} {{ 'a' is lower }} {{ 'A' is upper "
     "}} {{ x is iterable }} {{ true is true }} {{ 1 is true }}",
     "True True True True True False True False True True True True True True True True True True True True True False"},
    {"{{ \"<a>\"|safe + \"<b>\" }} {{ \"<a>\" + \"<b>\"|safe }} {{ \"<a>\"|safe ~ \"<b>\" }} {{ \"<a&'\\\">\"|e }} {{ "
     "(\"<a>\"|safe)|upper + '<' }}",
     "<a>&lt;b&gt; &lt;a&gt;<b> <a><b> &lt;a&amp;&#39;&#34;&gt; <A>&lt;"},
    {"{{ range(5)|list }} {{ range(1,10,3)|list }} {{ range(3) }} {{ range(5,0,-2)|list }} {{ range(0)|list }} {{ range(3)[1] }} "
     "{{ range(3)|length }}",
     "[0, 1, 2, 3, 4] [1, 4, 7] range(0, 3) [5, 3, 1] [] 1 3"},
    {"{{ range(9223372036854775806, 9223372036854775807, 5)|list }} {{ range(-9223372036854775807-1, 9223372036854775807, "
     "4611686018427387904)|list }} {{ true|round(0,'ceil') }} {{ ('%.98f' % 1e308)|length }}",
     "[9223372036854775806] [-9223372036854775808, -4611686018427387904, 0, 4611686018427387904] 1.0 408"},
    {"{% with a=1, b=2 %}{{ a+b }}{% endwith %}{% filter upper %}abc {{ 'd' }}{% endfilter %}{% generation %}gen{% endgeneration "
     "%}",
     "3ABC Dgen"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}{% for a, b in [[1,2],[3,4]] %}{{ a*b }} {% endfor %}",
     "12(1, 2)2 12 "},
    {"{{ 'a' 'b' \"c\" }} {{ \"\\u00e9\\x41\\101\\q\" }} {{ 0x1F }} {{ 1_000 }} {{ 0b101 }} {{ 1e3 }} {{ 1.5E+2 }}",
     "abc éAA\\q 31 1000 5 1000.0 150.0"},
    {"{{ 'a.b.c'.partition('.') }} {{ 'a.b.c'.rpartition('.') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ "
     "', '.join(['a','b']) }} {{ 'a\\nb\\r\\nc'.splitlines() }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }}",
     "('a', '.', 'b.c') ('a.b', '.', 'c') bc ab a, b ['a', 'b', 'c'] True True"},
    {"{{ [1,2,3]|join(', ') }} {{ [1,none,'a']|join }} {{ {'a':1,'b':2}|join(',') }} {{ "
     "[{'a':1},{'a':2}]|join('+',attribute='a') }} {{ 'abc'|join('.') }} {{ 'abc'|list }} {{ 'a b  c'|wordcount }} {{ "
     "{'a':1}|list }} {{ {'a':1}|items|list }}",
     "1, 2, 3 1Nonea a,b 1+2 a.b.c ['a', 'b', 'c'] 3 ['a'] [('a', 1)]"},
    {"{% for x in 'héy' %}[{{ x }}]{% endfor %}{% for x in undefinedthing %}a{% endfor %}{{ 'abc'[1] }}{{ 'abc'[10] is defined "
     "}}{{ [1,2][-1] }}{{ 'héy'[1] }}{{ [1]['x'] is defined }}",
     "[h][é][y]bFalse2éFalse"},
    {"{{ -1 }} {{ - 1 + 2 }} {{ 2 - -1 }} {{ 'x' * 0 }}| {{ 5 % 3 * 2 }} {{ (1, 2)[0] }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ -3|abs "
     "}} {{ 2 ~ 3 + 4 if false else 'q' }}",
     "-1 1 3 | 4 1 [1, 2] {'a': 1} 3 q"},
    {"{% set v = 'a' %}{% set v = v ~ 'b' %}{% set w = v %}{% set v = v ~ 'c' %}{% set w = w ~ 'd' %}{{ v }}{{ w }}{% set v = v "
     "+ v %}{{ v }}{{ v ~ v }}",
     "abcabdabcabcabcabcabcabc"},
    {"{% for a in [1,2] %}{% for b in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}{% for a in [1,1,2] %}{{ "
     "loop.changed(a) }}{{ loop.cycle('x','y') }}{% endfor %}",
     "121;122;TruexFalseyTruex"},
    {"{% set g = [1,2,3]|select('odd') %}{{ g|first }}{{ g|list }}{{ g|list }}{{ [1,2]|map('string')|first }}", "1[3][]1"},
    {"{{ dict(a=1, b=2) }} {{ dict({'a':1}, b=3) }} {% macro kw(a) %}{{ a }}{% endmacro %}{{ kw(*[1]) }}{{ kw(**{'a':2}) }}",
     "{'a': 1, 'b': 2} {'a': 1, 'b': 3} 12"},
    {"{{ messages[0].content }}{{ messages[0]['role'] }}{{ messages|length }}{{ messages[-1].content[:3] }}{{ "
     "messages[1:]|length }}",
     "hellouser2wor1"},
    {"{%- if true -%}  x  {%- endif -%}   y {%+ if true %}  z{% endif +%}\n  {% if true %}\nline\n  {% endif %}\n after {# "
     "comment #} more {#- c -#}   end\n{% raw %}{{ not }}\n{% endraw %}\n ok\n",
     "xy   z\nline\n after  moreend\n{{ not }}\n ok"},
    {"{{ 1 }}\n{{ 2 }}\n\ntail\n\n", "1\n2\n\ntail\n"},
    {" \t{% set x = 1 %}\r\n\r\n  {{ x }}\r\n {#\n c #}  \nz\n {%- for i in [1,2] %}\n  {{ i }}\n  {%- endfor %}\n",
     "\n  1\n  \nz  1  2"},
    {" {# a #}\n\t{# b #}  x {# c #}\n", "  x "},
    {"{% if true %}\n\n  a\n  {%+ if true %}\n b{% endif %}\n{% endif +%}\n\nq", "\n  a\n   b\n\nq"},
    {"{{ '%5s|%-5s|%.2s|%r' % ('ab','cd','efg','h') }} {{ '%05d|%-4d|%3d|%i' % (-42, 7, 8, 9) }}",
     "   ab|cd   |ef|'h' -0042|7   |  8|9"},
    {"{{ '%x %X %x' % (255, 255, -16) }} {{ '%f %.1f %8.3f %08.2f' % (1.5, 2.25, 3.14159, -2.5) }} {{ '%d' % 3.9 }} "
     "{{ '%d %f' % (true, true) }} {{ '%.3f' % 2 }}",
     "ff FF -10 1.500000 2.2    3.142 -0002.50 3 1 1.000000 2.000"},
    {"{{ '%(a)s-%(b)d%%' % {'a':'x','b':2} }} {{ '%s' % [1] }} {{ 'no' % () }} {{ '%-6s|' % none }}{{ '%(n)5.1f' % {'n': 2.25} "
     "}}",
     "x-2% [1] no None  |  2.2"},
    {"{{ '{} {{}} {}'.format(1,'b') }} {{ '{1}{0}{name}'.format('a','b',name='c') }}", "1 {} b bac"},
    {"{{ +1 }} {{ +(-2) }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 1_000 }} {{ True and not False }} {{ None is none }}",
     "1 -2 31 15 5 1000 True True"},
    {"{{ [1,[2,3]].1.0 }} {{ 1 is not odd }} {{ 2 is not odd }} {{ 4 is divisibleby 2 }} {{ 'a' is in ['a'] }} "
     "{{ 'a' is in {'a':1} }} {{ 'x' is eq 'x' }} {{ 2.5 is eq 2.5 }}",
     "2 False True True True True True True"},
};

static void renders_what_jinja2_renders(void **state)
{
    (void)state;
    struct jinja_output out = {0};
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        assert_ok(render(SAME[i].template, CONTEXT, NULL, &out));
        if (strcmp(out.text.data ? out.text.data : "", SAME[i].text) != 0)
            fail_msg("%s\n  gives  %s\n  not    %s", SAME[i].template, out.text.data, SAME[i].text);
    }
    jinja_output_free(&out);
}

/* The output with each message's bytes in brackets: "a[0:bc]d". */
static void bracketed(const struct jinja_output *out, char *text, size_t size)
{
    size_t n = 0;
    int64_t at = 0;
    text[0] = 0;
    for (int64_t i = 0; i < out->span_count; i++) {
        const struct jinja_span *span = &out->span[i];
        int length = (int)(span->end - span->begin);
        assert_int_equal(span->begin, at);
        assert_true(length > 0);
        at = span->end;
        if (span->message < 0)
            n += (size_t)snprintf(text + n, size - n, "%.*s", length, out->text.data + span->begin);
        else
            n += (size_t)snprintf(text + n, size - n, "[%d:%.*s]", (int)span->message, length, out->text.data + span->begin);
        assert_true(n < size);
    }
    assert_int_equal(at, out->text.size);
}

static const struct {
    const char *template, *text;
} ORIGINS[] = {
    {"<{{ messages[0].content }}|{{ messages[1].role }}>", "<[0:hello]|assistant>"},
    {"{{ '<' + messages[0]['content'] + '>' + messages[1]['content'] }}", "<[0:hello]>[1:world]"},
    {"{{ messages[0].content ~ messages[1].content ~ 1 }}", "[0:hello][1:world]1"},
    {"{{ ('  ' ~ messages[0].content ~ ' ' ~ messages[1].content ~ '  ')|trim }}", "[0:hello] [1:world]"},
    {"{{ ('xx' ~ messages[0].content ~ 'xx').strip('x') }}", "[0:hello]"},
    {"{{ (messages[0].content ~ messages[1].content)[3:7] }}", "[0:lo][1:wo]"},
    {"{{ (messages[0].content ~ messages[1].content)[::-1] }}", "[1:dlrow][0:olleh]"},
    {"{{ messages[0].content.replace('l', '-') }}", "[0:he]--[0:o]"},
    {"{{ messages[0].content.replace('l', messages[1].content) }}", "[0:he][1:worldworld][0:o]"},
    {"{{ messages[0].content.split('l')|join('+') }}", "[0:he]++[0:o]"},
    {"{{ (messages[0].content ~ 'A')|upper ~ messages[1].content|capitalize }}", "[0:HELLO]A[1:World]"},
    {"{% set x = messages[0].content %}{% set y %}({{ x }}){% endset %}{{ y }}", "([0:hello])"},
    {"{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s ~ m.content ~ ';' %}{% endfor %}{{ ns.s }}",
     "[0:hello];[1:world];"},
    {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[1].content)|trim }}", "<[1:world]>"},
    {"{{ messages|map(attribute='content')|join(' ') }}", "[0:hello] [1:world]"},
    {"{{ messages[0].content|tojson }} {{ ['a', messages[1].content]|tojson }}", "[0:\"hello\"] [\"a\", [1:\"world\"]]"},
    {"{{ '%s=%s' % ('a', messages[0].content) }}{{ '{}!'.format(messages[1].content) }}", "a=[0:hello][1:world]!"},
    {"{{ messages[0].content|indent(2, true) }}{{ messages[1].content|first }}{{ messages[1].content[1] }}", "  [0:hello][1:wo]"},
    {"{% for c in messages[0].content %}{{ c }}.{% endfor %}", "[0:h].[0:e].[0:l].[0:l].[0:o]."},
    {"{{ ('<' ~ messages[0].content)|e }}{{ messages[0].content|safe + '<' }}", "&lt;[0:hellohello]&lt;"},
    {"{{ messages[0].content if true }}{{ messages[1].content|default('x') }}{{ messages[0].content|length }}",
     "[0:hello][1:world]5"},
    {"{{ messages[0].content * 2 }}{{ [messages[1].content] }}", "[0:hellohello][[1:'world']]"},
};

static void every_byte_keeps_its_message(void **state)
{
    (void)state;
    struct jinja_output out = {0};
    char text[512];
    for (size_t i = 0; i < sizeof ORIGINS / sizeof *ORIGINS; i++) {
        assert_ok(render(ORIGINS[i].template, CONTEXT, NULL, &out));
        bracketed(&out, text, sizeof text);
        if (strcmp(text, ORIGINS[i].text) != 0)
            fail_msg("%s\n  gives  %s\n  not    %s", ORIGINS[i].template, text, ORIGINS[i].text);
    }
    jinja_output_free(&out);
}

/* A tool call is the assistant's own text, with its numbers and punctuation; the role is not. */
static void nested_values_belong_to_their_message(void **state)
{
    (void)state;
    const char *context = "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"hi\"}],"
                          " \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"n\": 1, \"ok\": true}}}]}]}";
    struct jinja_output out = {0};
    char text[512];
    assert_ok(render(
        "{{ messages[0].role }}:{{ messages[0].content[0].text }}{% for c in messages[0].tool_calls %} {{ c.function.name }}"
        " {{ c.function.arguments|tojson }}{% endfor %}",
        context, NULL, &out));
    bracketed(&out, text, sizeof text);
    assert_string_equal(text, "assistant:[0:hi] [0:f] [0:{\"n\": 1, \"ok\": true}]");
    jinja_output_free(&out);
}

static void budgets_end_what_would_not_end(void **state)
{
    (void)state;
    struct jinja_output out = {0};
    struct jinja_budget small = {.steps = 10000, .depth = 100, .output = 1000, .memory = 1 << 20};
    assert_fails(render("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", CONTEXT, &small, &out),
                 ERR_LIMIT, "t:1: the template runs too long");
    assert_fails(render("{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", CONTEXT, NULL, &out), ERR_LIMIT, "nests too deeply");
    assert_fails(render("{% for a in range(100) %}0123456789 0123456789{% endfor %}", CONTEXT, &small, &out), ERR_LIMIT,
                 "budget of 1000 bytes");
    assert_fails(render("{{ 'x' * 100000000000 }}", CONTEXT, &small, &out), ERR_LIMIT, "t:1:");
    assert_fails(render("{{ [1] * 100000000000 }}", CONTEXT, NULL, &out), ERR_LIMIT, "budget of memory");
    assert_fails(render("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
                        CONTEXT, NULL, &out),
                 ERR_LIMIT, "t:1:");
    assert_fails(
        render("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
               CONTEXT, NULL, &out),
        ERR_LIMIT, "t:1:");
    assert_fails(render("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}", CONTEXT, NULL, &out), ERR_LIMIT,
                 "nests too deeply");
    assert_fails(render("{{ range(100001)|list }}", CONTEXT, NULL, &out), ERR_LIMIT, "range");
    assert_int_equal(out.text.size, 0);
    assert_int_equal(out.span_count, 0);
    jinja_output_free(&out);
}

/* Work that grows with a string's length costs as many steps. */
/* Rows that each stay within a budget must not take it again and again. What they leave is enough for others, and a long text
 * brings what it takes. */
static void all_rows_share_one_budget(void **state)
{
    (void)state;
    static const char source[] = "{% for i in range(n) %}{{ text }}{% endfor %}";
    struct jinja *jinja;
    struct jinja_output out = {0};
    json_t *idle = json_pack("{s:i, s:s}", "n", 30000, "text", ""), *few = json_pack("{s:i, s:s}", "n", 10, "text", ""),
           *writing = json_pack("{s:i, s:s}", "n", 30000, "text", "some text");
    assert_ok(jinja_parse(&jinja, source, (int64_t)sizeof source - 1, "t"));
    int rows = 0;
    *jinja->purse = 500000;
    for (int i = 0; i < 100; i++)
        assert_ok(jinja_render(jinja, writing, NULL, &out));
    *jinja->purse = 500000;
    while (rows < 100 && jinja_render(jinja, idle, NULL, &out) == OK)
        rows++;
    assert_true(rows > 2 && rows < 20);
    assert_fails(jinja_render(jinja, idle, NULL, &out), ERR_LIMIT, "its budget of steps is used up");
    assert_ok(jinja_render(jinja, few, NULL, &out));
    assert_ok(jinja_render(jinja, idle, &jinja_budget_default, &out));
    json_decref(idle);
    json_decref(few);
    json_decref(writing);
    jinja_output_free(&out);
    jinja_free(jinja);
}

static void long_strings_cost_steps(void **state)
{
    (void)state;
    enum { LONG = 100000 };
    static const char *const work[] = {
        "1",           "a == b",           "a < b",       "a in d",      "d[a]",          "a.startswith(b)", "a|length",
        "a[1:]",       "[a, 1] == [b, 1]", "a.find('y')", "a|upper",     "a|trim('x')",   "a[-1]",           "a|trim('\u00e9x')",
        "a.count('')", "a % ()",           "a.format()",  "a.isalpha()", "l == m",        "[l] < [m]",       "a in b",
        "a.rsplit()",  "[a]|string",       "q|tojson",    "[q]|string",  "q.split('\\t')"};
    const struct jinja_budget small = {.steps = 10000, .depth = 100, .output = 1000, .memory = 64 << 20};
    struct jinja_output out = {0};
    struct buffer context = {0};
    for (int i = 0; i < 2; i++) {
        assert_ok(buffer_format(&context, "%s\"%c\": \"", i ? ", " : "{", 'a' + i));
        for (int k = 0; k < LONG; k++)
            assert_ok(buffer_append(&context, "x", 1));
        assert_ok(buffer_append(&context, "\"", 1));
    }
    assert_ok(buffer_append(&context, "}", 1));
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "{%% set d = {b: 1} %%}{%% set q = '\\t' * 1000 %%}{%% set l = range(90000)|list %%}{%% set m = range(90000)|list %%}"
            "{%% for i in range(100) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
            work[i]);
        enum status status = render(text, context.data, &small, &out);
        if (status != (i ? ERR_LIMIT : OK))
            fail_msg("%s: %s", work[i], status == OK ? "costs nothing" : status_message());
    }
    buffer_free(&context);
    jinja_output_free(&out);
}

static void nesting_is_bounded_while_parsing(void **state)
{
    (void)state;
    static const struct {
        const char *open, *close;
    } forms[] = {
        {"(", ")"}, {"[", "]"}, {"-", ""}, {"not ", ""}, {"1 if 1 else ", ""}, {"a[", "]"}, {"f(", ")"}, {"{1:", "}"},
    };
    enum { DEEP = 20000 };
    char *text = malloc(DEEP * 16 + 100);
    assert_non_null(text);
    struct jinja *jinja;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        size_t n = (size_t)sprintf(text, "{{ ");
        for (int i = 0; i < DEEP; i++)
            n += (size_t)sprintf(text + n, "%s", forms[f].open);
        n += (size_t)sprintf(text + n, "1");
        for (int i = 0; i < DEEP; i++)
            n += (size_t)sprintf(text + n, "%s", forms[f].close);
        n += (size_t)sprintf(text + n, " }}");
        assert_fails(jinja_parse(&jinja, text, (int64_t)n, "t"), ERR_LIMIT, "nest");
        assert_null(jinja);
    }
    size_t n = 0;
    for (int i = 0; i < DEEP; i++)
        n += (size_t)sprintf(text + n, "{%%if 1%%}");
    assert_fails(jinja_parse(&jinja, text, (int64_t)n, "t"), ERR_LIMIT, "nest");
    n = (size_t)sprintf(text, "{{ 1");
    for (int i = 0; i < DEEP; i++)
        n += (size_t)sprintf(text + n, "+1");
    sprintf(text + n, " }}");
    struct jinja_output out = {0};
    assert_fails(render(text, CONTEXT, NULL, &out), ERR_LIMIT, "nests too deeply");
    jinja_output_free(&out);
    free(text);
}

/* 2 MB of sums took 440 MB, and a GGUF file's template could have any size. */
static void a_source_is_of_a_template_s_size(void **state)
{
    (void)state;
    struct jinja *jinja;
    char *text = malloc(JINJA_SOURCE_MAX + 1);
    assert_non_null(text);
    memset(text, 'x', JINJA_SOURCE_MAX + 1);
    assert_fails(jinja_parse(&jinja, text, JINJA_SOURCE_MAX + 1, "t"), ERR_LIMIT, "t: a template of 1048577 bytes");
    assert_ok(jinja_parse(&jinja, text, JINJA_SOURCE_MAX, "t"));
    jinja_free(jinja);
    free(text);
}

static void errors_say_what_and_where(void **state)
{
    (void)state;
    struct jinja_output out = {0};
    assert_fails(render("a\n{{ raise_exception('Only ' ~ 'users!') }}", CONTEXT, NULL, &out), ERR_DATA,
                 "t:2: the template refuses: Only users!");
    assert_fails(render("{{ 1|frobnicate }}", CONTEXT, NULL, &out), ERR_UNSUPPORTED, "t:1: the filter 'frobnicate'");
    assert_fails(render("{{ 1 is frobnicated }}", CONTEXT, NULL, &out), ERR_UNSUPPORTED, "the test 'frobnicated'");
    assert_fails(render("\n\n{% include 'x' %}", CONTEXT, NULL, &out), ERR_UNSUPPORTED, "t:3: the tag 'include'");
    assert_fails(render("{{ messages.append(1) }}", CONTEXT, NULL, &out), ERR_UNSUPPORTED, "append");
    assert_fails(render("{{ messages.__class__ }}", CONTEXT, NULL, &out), ERR_UNSUPPORTED, "__class__");
    assert_fails(render("{{ nothing.at_all }}", CONTEXT, NULL, &out), ERR_DATA, "'nothing' is undefined");
    assert_fails(render("{{ 'a' + 1 }}", CONTEXT, NULL, &out), ERR_DATA, "'str' and 'int'");
    assert_fails(render("{{ 1 // 0 }}", CONTEXT, NULL, &out), ERR_DATA, "division by zero");
    assert_fails(render("{{ 9223372036854775807 + 1 }}", CONTEXT, NULL, &out), ERR_UNSUPPORTED, "64 bits");
    assert_fails(render("{% for x in 5 %}{% endfor %}", CONTEXT, NULL, &out), ERR_DATA, "not iterable");
    assert_fails(render("{{ nothing|tojson }}", CONTEXT, NULL, &out), ERR_DATA, "not JSON serializable");
    assert_fails(render("{{ a '\\n\\r' }}", CONTEXT, NULL, &out), ERR_FORMAT, "t:1: expected '}}', not ' ?'");
    assert_fails(render("{{ raise_exception('a\\nb') }}", CONTEXT, NULL, &out), ERR_DATA, "the template refuses: a b");
    static const char *const broken[] = {
        "{{ 1",        "{% if 1 %}",      "{% endif %}",
        "{{ ) }}",     "{{ 'a }}",        "{# x",
        "{% raw %}",   "{{ }}",           "{% for x %}{% endfor %}",
        "{{ a b }}",   "{% set 1 = 2 %}", "{{ 1 + }}",
        "{{ a. }}",    "{{ a[] }}",       "{{ f(a=1, 2) }}",
        "{% break %}", "{{ '\\x4' }}",    "{{ 99999999999999999999 }}",
        "{% %}",       "{{ $ }}",         "{% macro %}{% endmacro %}",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        enum status status = render(broken[i], CONTEXT, NULL, &out);
        if (status != ERR_FORMAT || !strstr(status_message(), "t:1: "))
            fail_msg("%s: status %d: %s", broken[i], status, status_message());
    }
    jinja_output_free(&out);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    struct failing f = {0};
    const char *template =
        "{% set x = messages|map(attribute='content')|join(',') %}{{ x|upper }}{{ messages|tojson(indent=2) }}";
    while (failing_next(&f)) {
        struct jinja_output out = {0};
        failing_begin(&f);
        failing_end(&f, render(template, CONTEXT, NULL, &out));
        jinja_output_free(&out);
    }
    assert_true(f.failed > 5);
}

/* Fails if what a budget ended is not released, or is reported as another error. */
static void a_budget_may_end_anywhere(void **state)
{
    (void)state;
    enum { STEPS, OUTPUT, MEMORY, BUDGETS };
    int64_t ended = 0;
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++)
        for (int kind = 0; kind < BUDGETS; kind++) {
            enum status status = ERR_LIMIT;
            for (int64_t left = 0; status != OK; left += kind == MEMORY ? 8 : 1, ended++) {
                struct jinja_budget budget = jinja_budget_default;
                struct jinja_output out = {0};
                *(kind == STEPS ? &budget.steps : kind == OUTPUT ? &budget.output : &budget.memory) = left;
                status = render(SAME[i].template, CONTEXT, &budget, &out);
                if (status == OK ? strcmp(out.text.data ? out.text.data : "", SAME[i].text) != 0
                                 : status != ERR_LIMIT || !strstr(status_message(), "budget"))
                    fail_msg("%s\n  with %lld left: status %d, %s", SAME[i].template, (long long)left, status, status_message());
                jinja_output_free(&out);
            }
        }
    assert_true(ended > 10000);
}

/* Fails if the parser reads on after the end of a template, or an error has no line. */
static void a_template_may_end_or_lack_a_character_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        size_t size = strlen(SAME[i].template);
        for (size_t at = 0; at < 2 * size; at++) {
            struct jinja *jinja;
            size_t left = at < size ? at : size - 1;
            char *text = test_malloc(left + 1); /* exact, so that sanitizers see a byte too many */
            memcpy(text, SAME[i].template, left);
            if (at >= size)
                memmove(text + (at - size), SAME[i].template + (at - size) + 1, 2 * size - 1 - at);
            text[left] = 0;
            enum status status = jinja_parse(&jinja, text, (int64_t)left, "t");
            if (status == OK)
                jinja_free(jinja);
            else if (!strstr(status_message(), "t:"))
                fail_msg("%s: status %d, %s", text, status, status_message());
            test_free(text);
        }
    }
}

/* What a template may write and keep by itself is little; what a row brings is granted several times over. Without that, either
 * a row of two lines takes hundreds of MB, or a long conversation is refused. */
static void a_long_row_brings_its_own_budget(void **state)
{
    (void)state;
    enum { LONG = 4 << 20 };
    struct jinja_output out = {0};
    struct buffer context = {0};
    char large[128];
    snprintf(large, sizeof large, "{{ text }}{{ text }}{{ ([1] * %zu)|length > 9 }}", (70 << 20) / sizeof(struct value));
    assert_fails(render("{{ 'a' * 1000000 }}", CONTEXT, NULL, &out), ERR_LIMIT, "the rendered text exceeds its budget");
    assert_fails(render(large, CONTEXT, NULL, &out), ERR_LIMIT, "its budget of memory is used up");
    assert_ok(buffer_format(&context, "{\"text\": \"%*s\"}", (int)LONG, "a"));
    assert_ok(render(large, context.data, NULL, &out));
    assert_int_equal(out.text.size, 2 * LONG + 4);
    buffer_free(&context);
    jinja_output_free(&out);
}

/* A thousand messages joined in one variable: without appending in place this would copy half a gigabyte. */
static void growing_a_string_copies_it_once(void **state)
{
    (void)state;
    struct jinja_output out = {0};
    struct jinja_budget budget = jinja_budget_default;
    budget.memory = 64 << 20;
    assert_ok(render("{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s + 'fifty bytes fifty bytes "
                     "fifty bytes fifty bytes ..' %}{% endfor %}{{ ns.s|length }}",
                     CONTEXT, &budget, &out));
    assert_string_equal(out.text.data, "1000000");
    jinja_output_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_what_jinja2_renders),
        cmocka_unit_test(every_byte_keeps_its_message),
        cmocka_unit_test(nested_values_belong_to_their_message),
        cmocka_unit_test(budgets_end_what_would_not_end),
        cmocka_unit_test(all_rows_share_one_budget),
        cmocka_unit_test(long_strings_cost_steps),
        cmocka_unit_test(nesting_is_bounded_while_parsing),
        cmocka_unit_test(a_source_is_of_a_template_s_size),
        cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(a_budget_may_end_anywhere),
        cmocka_unit_test(a_template_may_end_or_lack_a_character_anywhere),
        cmocka_unit_test(a_long_row_brings_its_own_budget),
        cmocka_unit_test(growing_a_string_copies_it_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
