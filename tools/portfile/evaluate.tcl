# Evaluates a Portfile the way `port` would, as far as a stub can: tclsh evaluate.tcl PORTFILE [KEY VALUE]...
# Keys: subport, os_major, arch, prefix, filespath, workpath, worksrcpath, destroot, run (phases to carry out).
# It prints one JSON object: options, port groups, subports, variants, phases, and the owners that xinstall set.
# Known commands are below; any other word with arguments is an option, as in `port` itself.

package require Tcl 8.6-
array set given {
    subport {} os_major 23 arch arm64 prefix /opt/local filespath files workpath work worksrcpath work/src
    destroot work/destroot run {}
}
set portfile [lindex $argv 0]
array set given [lrange $argv 1 end]
set told(options) {}
foreach kind {groups subports variants phases users owners unknown messages} { set told($kind) {} }

foreach key {prefix filespath workpath worksrcpath destroot} { set $key $given($key) }
set os.major $given(os_major)
set os.platform darwin
set os.arch [expr {$given(arch) eq "arm64" ? "arm" : "i386"}]
set build_arch $given(arch)
set configure.build_arch $given(arch)
set subport $given(subport)
set extract.suffix .tar.gz

proc option_set {name value} {
    global told
    upvar #0 $name variable
    set variable $value
    dict set told(options) $name $value
}

# An option is set, added to or taken from by its name alone.
proc unknown {name args} {
    global told
    if {[regexp {^(.+)-(append|prepend|delete|replace)$} $name -> option how]} {
        upvar #0 $option variable
        set old [expr {[info exists variable] ? $variable : {}}]
        switch $how {
            append  { option_set $option [concat $old $args] }
            prepend { option_set $option [concat $args $old] }
            delete  { option_set $option [lmap word $old { expr {$word in $args ? [continue] : $word} }] }
            replace { option_set $option [string map $args $old] }
        }
        return
    }
    if {![regexp {^[a-z][a-z0-9_.]*$} $name]} {
        error "$name is no command and no option"
    }
    if {![string match *.* $name] && $name ni $::plain_options} {
        lappend told(unknown) $name
    }
    option_set $name [expr {[llength $args] == 1 && $name in $::text_options ? [lindex $args 0] : $args}]
}
set plain_options {
    name version revision epoch categories license maintainers platforms supported_archs installs_libs description
    long_description homepage master_sites checksums distname depends_build depends_lib depends_run depends_test
    depends_extract depends_fetch conflicts notes worksrcdir distfiles patchfiles replaced_by universal_variant known_fail
}
set text_options {notes description long_description version}

proc PortSystem {version} {
    dict set ::told(options) PortSystem $version
    option_set platforms darwin
}
proc PortGroup {group version} { lappend ::told(groups) [list $group $version] }

proc github.setup {author project version {prefix {}} {suffix {}}} {
    foreach {name value} [list github.author $author github.project $project github.version $version \
        git.branch $prefix$version$suffix name $project version $version distname $project-$version \
        homepage https://github.com/$author/$project \
        master_sites https://github.com/$author/$project/releases/download/$prefix$version$suffix] {
        # Subports keep the port's name.
        if {$name ne "name" || ![info exists ::name]} { option_set $name $value }
    }
    if {$::subport eq ""} { set ::subport $::name }
}
proc name {name} {
    option_set name $name
    if {$::subport eq ""} { set ::subport $name }
}
# A py-* port's distfile is PyPI's.
proc version {version} {
    option_set version $version
    if {[regexp {^py-(.+)$} $::name -> root]} {
        option_set distname $root-$version
        option_set categories python
        option_set master_sites pypi:[string index $root 0]/$root
    }
}
proc python_is {version} {
    option_set python.version $version
    set ::python.branch [string index $version 0].[string range $version 1 end]
    unknown depends_lib-append port:python$version
    unknown depends_build-append port:py$version-build port:py$version-installer
}
proc python.default_version {version} {
    option_set python.default_version $version
    python_is $version
}
# A py-* port has a subport for each Python.
proc python.versions {args} {
    option_set python.versions $args
    foreach version $args {
        set own [regsub {^py-} $::name py$version-]
        lappend ::told(subports) $own
        if {$::subport eq $own} { python_is $version }
    }
}
proc python.pep517_backend {backend} {
    option_set python.pep517_backend $backend
    set builds {hatch hatchling maturin maturin setuptools setuptools}
    if {[info exists ::python.version]} {
        unknown depends_build-append port:py${::python.version}-[dict get $builds $backend]
    }
}
proc subport {name body} {
    lappend ::told(subports) $name
    if {$::subport eq $name} { uplevel #0 $body }
}
proc variant {name args} { lappend ::told(variants) [list $name {*}[lrange $args 0 end-1]] }
proc platform {args} {
    set wanted [lrange $args 0 end-1]
    set own [list darwin ${::os.major} ${::os.arch}]
    foreach word $wanted { if {$word ni $own} { return } }
    uplevel #0 [lindex $args end]
}
proc add_users {args} { lappend ::told(users) $args }
proc default {name value} { if {![info exists ::$name]} { option_set $name [uplevel #0 [list subst $value]] } }

foreach step {fetch checksum extract patch configure build destroot test install activate deactivate} {
    foreach moment {pre- {} post-} {
        proc $moment$step {body} [format {
            lappend ::told(phases) %1$s
            set ::body(%1$s) $body
        } $moment$step]
    }
}

# What phases do to files; owners are told, for a test's user need not exist.
proc ui_msg {text} { lappend ::told(messages) $text }
proc ui_warn {text} { lappend ::told(messages) "warning: $text" }
proc copy {from to} { file copy -force $from $to }
proc reinplace {args} {
    if {[lindex $args 0] eq "-q"} { set args [lrange $args 1 end] }
    lassign $args expression
    lassign [split $expression |] - pattern becomes
    foreach path [lrange $args 1 end] {
        set file [open $path]
        set text [read $file]
        close $file
        set file [open $path w]
        puts -nonewline $file [string map [list $pattern $becomes] $text]
        close $file
    }
}
proc xinstall {args} {
    array set wish {-m 0755 -o root -g wheel}
    set is_folder 0
    while {[string match -* [lindex $args 0]]} {
        if {[lindex $args 0] eq "-d"} {
            set is_folder 1
            set args [lrange $args 1 end]
        } else {
            set wish([lindex $args 0]) [lindex $args 1]
            set args [lrange $args 2 end]
        }
    }
    if {$is_folder} {
        foreach path $args {
            file mkdir $path
            xinstalled $path $wish(-m) $wish(-o) $wish(-g)
        }
        return
    }
    lassign $args from to
    file copy -force $from $to
    xinstalled $to $wish(-m) $wish(-o) $wish(-g)
}
proc xinstalled {path mode owner group} {
    file attributes $path -permissions 0o$mode
    lappend ::told(owners) [list $path $owner $group $mode]
}

source $portfile

# What base makes of options: a platform that is too old is a known failure, and a name is the job's.
set known_fail no
if {[regexp {darwin any >= (\d+)} [dict get $told(options) platforms] -> least] && ${os.major} < $least} {
    set known_fail yes
}
option_set known_fail $known_fail
option_set subport $subport
foreach phase $given(run) { if {[info exists body($phase)]} { eval $body($phase) } }

proc json_text {text} {
    set escapes [list \\ \\\\ \" \\\" \n \\n \t \\t \r \\r]
    return "\"[string map $escapes $text]\""
}
proc json_list {values {inner json_text}} { return "\[[join [lmap value $values { $inner $value }] {, }]\]" }
proc json_words {value} { json_list $value }

set fields [list "\"options\": {[join [lmap {name value} $told(options) {
    string cat [json_text $name] {: } [expr {[string is list $value] && $name ni $text_options
        ? [json_list $value] : [json_list [list $value]]}]
}] {, }]}"]
foreach kind {subports phases unknown messages} { lappend fields "\"$kind\": [json_list $told($kind)]" }
foreach kind {groups variants users owners} { lappend fields "\"$kind\": [json_list $told($kind) json_words]" }
puts "{[join $fields ", "]}"
